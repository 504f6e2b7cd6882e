"""Prompts for what BFCL has not: demands to real MCP servers, by the name of their tool set; talk; code."""

from __future__ import annotations

from typing import Final

MCP: Final = (
    ("git", "Commit the staged files in /repo with the message 'Fix the login form'."),
    ("filesystem", "Show me what is in /home/ada/notes.txt."),
    ("memory", "Remember that Ada Lovelace lives in London."),
    ("fetch", "Read https://example.org/news and show me the first 2000 characters."),
    ("playwright", "Open https://example.org/login in the browser."),
    ("git", "What changed in the repository /home/ada/project since the last commit?"),
    ("filesystem", "Make a folder /srv/data/2024 for the reports."),
    ("memory", "Who do I know that works at the university?"),
    ("opencode", "Find all TypeScript files below src."),
    ("fetch", "Get the page https://docs.python.org/3/library/json.html as raw text."),
    ("git", "Show the last 5 commits of /srv/site."),
    ("filesystem", "Rename /tmp/a.txt to /tmp/b.txt."),
    ("playwright", "Press the Submit button."),
    ("memory", "Forget everything about Bob."),
    ("opencode", "Search for TODO in the code."),
    ("git", "Start a branch called feature-x in /repo."),
)
CHAT: Final = (
    "Why do leaves change color in autumn?",
    "My neighbor plays loud music at night. What can I say to him?",
    "Tell me about the lighthouse of Alexandria.",
    "I have eggs, rice and spinach. What can I cook?",
    "Write a birthday wish for my grandmother.",
    "How does a refrigerator keep food cold?",
    "Which is better for a beginner, a road bike or a mountain bike?",
    "Describe a rainy day in a small harbor.",
)
CODE: Final = (
    "Write a Python function that returns the second largest number of a list.",
    "Write a Python function that converts Roman numerals to integers.",
    "Write a SQL query that finds the five customers with the most orders.",
    "Write a JavaScript function that debounces another function.",
    "Write a Python class for a bounded queue with put and get.",
    "Write a shell script that deletes log files older than 30 days.",
    "Write a Python function that checks whether brackets are balanced.",
    "Write a C function that counts the set bits of an integer.",
)
