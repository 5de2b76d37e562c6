"""Publishing: fenced from replaced configurations, and watched for rival daemons."""
