"""DSpark: a small draft network that reads the target's hidden states and proposes a block of tokens at once.

After "DSpark" (DeepSpec, deepseek-ai/DeepSpec). The anchor and mask tokens go through a few layers together; each layer
attends to keys and values made of the target's hidden states, and to the whole block in both directions. A Markov head
then makes the positions depend on each other, from left to right.
"""
