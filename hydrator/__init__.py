"""Give HTCondor pools the knowledge where data is."""
