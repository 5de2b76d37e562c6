"""The data flow: demand, snapshot, audit, ads, plan; one pass over them is a cycle."""
