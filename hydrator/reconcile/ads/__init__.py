"""Site ads: build the ad of each site from its facts, within the size budget."""
