"""The data flow of the daemon: demand, snapshot, ads, plan. One pass over these steps is a cycle."""
