"""What `import memloc` offers; each name is imported when it is first used."""
