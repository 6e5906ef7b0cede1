"""Listed projects: fetched, unpacked, and extracted."""
