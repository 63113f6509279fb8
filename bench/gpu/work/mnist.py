"""The training step of the Keras MNIST convnet, batch 128, on made-up digits: small kernels, launch-bound."""
import torch
from common import measure

torch.manual_seed(1)
device = torch.device("cuda")
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(1600, 10)).to(device)
optimiser = torch.optim.Adam(model.parameters())
loss_of = torch.nn.CrossEntropyLoss()
images = torch.rand(128, 1, 28, 28, device=device)
labels = torch.randint(0, 10, (128,), device=device)
torch.set_num_threads(1)


def step():
    optimiser.zero_grad(set_to_none=True)
    loss_of(model(images), labels).backward()
    optimiser.step()


measure(step, torch.cuda.synchronize)
