"""`MODELS`: every network of the published experiments, with its data, its training and its published figures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from unstall.models.layers import Cifar10Tutorial, ConvNet, DenseNet, TextNet
from unstall.models.network import Figure, Network, Training, figure

_TUTORIAL = "the Keras cat/dog tutorial: two pairs of convolution and max-pool"
_UPGRADE = "the write-up that grew from it"

# As published. 25 epochs of 8,000 steps of 32 images are 800 passes over the 8,000 photos; probably 25 were meant.
_CATS_DOGS = Training(
    optimizer="adam", batch_size=32, epochs=25, steps_per_epoch=8000, loss="binary_crossentropy", metrics=("accuracy",)
)
_SPARSE = "sparse_categorical_crossentropy"
_TEST = "2,000 test photos"

_NETWORKS: dict[str, Network] = {
    "cats-dogs-64": ConvNet(
        input_shape=(64, 64, 3),
        data="photos",
        filters=(32, 32),
        training=_CATS_DOGS,
        source=_TUTORIAL,
        published=(
            Figure(quantity="images_per_sec", low=47, high=64, on="VM", when="workers 1 and 4, batches of 32 and 64"),
            figure("rate_ratio", 3, "GPU", "the best workers and batch against one worker and 32; about"),
            figure("rate_ratio", 1, "VM and GPU", "a longer queue, and files in RAM"),
            figure("images_per_sec", 425, "V100"),
            figure("images_per_sec", 533, "V100", "without shear, zoom and flip"),
            figure("accuracy", 0.80, "GPU", _TEST),
        ),
    ),
    "cats-dogs-64-deeper": ConvNet(
        input_shape=(64, 64, 3),
        data="photos",
        filters=(32, 32, 64),
        training=_CATS_DOGS,
        source=_UPGRADE,
        published=(
            figure("rate_ratio", 1, "CPU and GPU", "against cats-dogs-64: no noticeable change"),
            Figure(quantity="gpu_ratio", low=0, high=0.10, on="GPU", when="64 px"),
            figure("speed_up", 4, "GPU against CPU", "64 px"),
            figure("accuracy", 0.84, "GPU", _TEST),
        ),
    ),
    "cats-dogs-64-dropout": ConvNet(
        input_shape=(64, 64, 3),
        data="photos",
        filters=(32, 32, 64),
        dropout=0.5,
        training=_CATS_DOGS,
        source=_UPGRADE,
        published=(
            figure("rate_ratio", 1, "CPU and GPU", "against cats-dogs-64-deeper: no noticeable change"),
            figure("accuracy", 0.90, "GPU", _TEST),
            figure("accuracy", 0.85, "GPU", f"{_TEST}, trained without shear, zoom and flip"),
        ),
    ),
    "cats-dogs-128": ConvNet(
        input_shape=(128, 128, 3),
        data="photos",
        filters=(64, 64, 64, 64),
        dropout=0.5,
        training=_CATS_DOGS,
        source=_UPGRADE,
        published=(
            figure("images_per_sec", 333, "V100"),
            figure("rate_ratio", 0.80, "GPU", "against 64 px"),
            figure("rate_ratio", 0.15, "CPU", "against 64 px"),
            figure("gpu_ratio", 0.50, "GPU", "about"),
            figure("speed_up", 23, "GPU against CPU"),
            figure("accuracy", 0.94, "GPU", _TEST),
        ),
    ),
    "cats-dogs-very-deep": ConvNet(
        input_shape=(128, 128, 3),
        data="photos",
        filters=(64, 64, 64, 64),
        dropout=0.5,
        # After the first pair, where images are 63 px wide: this makes the network as slow as the write-up says.
        extra=30,
        extra_after=1,
        training=_CATS_DOGS,
        source=_UPGRADE,
        published=(
            figure("gpu_ratio", 1, "GPU"),
            figure("rate_ratio", 1, "GPU", "against cats-dogs-128: about as fast"),
            figure("images_per_sec", 3, "CPU", "about"),
            figure("speed_up", 100, "GPU against CPU", "about"),
        ),
    ),
    "cifar10-mlp": DenseNet(
        input_shape=(32, 32, 3),
        data="cifar10",
        classes=10,
        hidden=(3000, 1000),
        output="sigmoid",
        # The publication has one-hot labels and `categorical_crossentropy`. Losses and gradients are the same, since
        # both losses divide the outputs by their sum first; a test compares them.
        training=Training(optimizer="sgd", batch_size=32, epochs=10, loss=_SPARSE),
        source="a write-up of Azure's NC4as T4 v3 machines",
        published=(
            figure("train_s", 485, "CPU", "10 epochs"),
            figure("train_s", 40, "Tesla T4 (NC4as T4 v3)", "10 epochs"),
            figure("speed_up", 12, "Tesla T4 (NC4as T4 v3) against CPU", "10 epochs"),
        ),
    ),
    "cifar10-cnn": Cifar10Tutorial(
        # The tutorial crops the 32x32 images to 24x24 pixels: at random in training, in the middle in testing.
        input_shape=(24, 24, 3),
        data="cifar10",
        classes=10,
        # The tutorial runs a million steps, and the publication gives rates only: 10 epochs, as for the MLP. The
        # tutorial divides its learning rate by 10 after 350 epochs, which this training does not reach.
        training=Training(optimizer="sgd", learning_rate=0.1, batch_size=128, epochs=10, loss=_SPARSE),
        source="TensorFlow's CIFAR-10 tutorial, 2015",
        published=(
            Figure(quantity="images_per_sec", low=15_000, high=17_000, on="V100", when="batches of 128 and 512"),
            figure("gpu_ratio", 0.45, "V100", "batches of 128 and 512"),
            figure("images_per_sec", 210, "16 Xeon cores"),
            figure("images_per_sec", 90, "VM"),
        ),
    ),
    "mnist-digits": ConvNet(
        # The publication only says "extremely simple". This is Keras' example "Simple MNIST convnet".
        input_shape=(28, 28, 1),
        data="mnist",
        classes=10,
        filters=(32, 64),
        dense=0,
        dropout=0.5,
        training=Training(optimizer="adam", batch_size=128, epochs=15, loss=_SPARSE),
        source='Keras\' example "Simple MNIST convnet"',
        published=(
            figure("train_s", 112, "laptop CPU"),
            figure("cpu_ratio", 1, "laptop CPU"),
            figure("train_s", 8.43, "Tesla P100"),
            figure("gpu_ratio", 0.26, "Tesla P100"),
            figure("speed_up", 13, "Tesla P100 against laptop CPU"),
        ),
    ),
    "text-classifier": TextNet(
        # The publication names no layers. Layers, batch size and epochs come from Keras' example `imdb_cnn`; the number
        # of words and the length of a review come from Keras' later examples with the same reviews.
        input_shape=(200,),
        input_dtype="int32",
        data="text",
        classes=2,
        words=20_000,
        embedding=50,
        filters=250,
        dense=250,
        dropout=0.2,
        training=Training(optimizer="adam", batch_size=32, epochs=2, loss="binary_crossentropy"),
        source="Keras' example imdb_cnn",
        published=(
            figure("train_s", 198.2, "Colab CPU"),
            figure("train_s", 14.4, "Colab GPU"),
            figure("speed_up", 13.76, "Colab GPU against CPU"),
        ),
    ),
    "feed-forward": DenseNet(
        input_shape=(1000,),
        data="features",
        classes=2,
        hidden=(512, 256),
        training=Training(optimizer="adam", learning_rate=1e-3, batch_size=None, epochs=10, loss=_SPARSE),
        source="a comparison of CPU and GPU on random features",
    ),
}

MODELS: Mapping[str, Network] = MappingProxyType(_NETWORKS)
