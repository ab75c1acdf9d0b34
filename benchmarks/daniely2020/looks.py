"""Looks of the methods, the same in all pictures."""

from implicit_bias.base.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

# Colour and line of each method.
LOOKS = {
    "theorem 3": (BLUE, "o-"),
    "ReLU network": (SKY, "s-"),
    "NTK regime": (VERMILION, "^--"),
    "ReLU features": (GREEN, "v:"),
    "Gaussian features": (PURPLE, "D:"),
    "group SVM": (ORANGE, "P--"),
}
