"""HTTP clients: bounded exchanges and OAuth."""
