"""The history of the site ads: generations of whole ads, and the stays of datasets in them."""
