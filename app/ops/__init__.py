"""What the people on call use: health, checks of the database, the API explorer."""
