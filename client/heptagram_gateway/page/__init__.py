"""The status page at ``/``: static files and the JSON they show. No build step, and nothing from another host."""
