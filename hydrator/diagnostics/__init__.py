"""Questions that people ask about jobs and installations."""
