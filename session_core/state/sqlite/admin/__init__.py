"""Reports and upkeep of a home, reached as `db.admin`: integrity, sizes, and VACUUM."""
