"""One model of the losses and its draws: means, noise, columns, posterior, questions to it."""
