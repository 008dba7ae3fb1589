"""Photos from folders by PyTorch's DataLoader, and the loop of PyTorch's tutorials: on a GPU where there is one.

python torch_loop.py photos/train
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader


class Photos(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*/*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        image = Image.open(file).convert("RGB").resize((64, 64))
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) / 255
        return pixels, float(self.classes.index(file.parent.name))


device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(Photos(sys.argv[1]), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 32, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 14 * 14, 128),
    nn.ReLU(),
    nn.Linear(128, 1),
    nn.Flatten(0),
).to(device)
optimizer = torch.optim.Adam(model.parameters())
loss_of = nn.BCEWithLogitsLoss()

for epoch in range(4):
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.float().to(device)
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1}: loss {total / len(loader):.3f}")
