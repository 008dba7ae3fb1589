"""Photos from folders by tf.data, and a training loop of JAX's own: on a GPU where there is one.

python jax_loop.py photos/train
"""

import sys

import jax
import jax.numpy as jnp
import tensorflow as tf

SIDE = 64


def read(path, label):
    image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIDE, SIDE))
    return image / 255.0, label


files = tf.io.gfile.glob(f"{sys.argv[1]}/*/*.jpg")
classes = sorted({file.split("/")[-2] for file in files})
labels = [float(classes.index(file.split("/")[-2])) for file in files]
photos = (
    tf.data.Dataset.from_tensor_slices((files, labels)).shuffle(len(files)).map(read).batch(32, drop_remainder=True)
)


def layer(key, inputs, outputs):
    return jax.random.normal(key, (inputs, outputs)) * inputs**-0.5, jnp.zeros(outputs)


keys = jax.random.split(jax.random.key(0), 3)
weights = [layer(keys[0], SIDE * SIDE * 3, 512), layer(keys[1], 512, 512), layer(keys[2], 512, 1)]


def loss_of(weights, images, labels):
    values = images.reshape(len(images), -1)
    for matrix, bias in weights[:-1]:
        values = jax.nn.relu(values @ matrix + bias)
    logits = (values @ weights[-1][0] + weights[-1][1])[:, 0]
    return jnp.mean(jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits))))


@jax.jit
def step(weights, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, weights, gradients), loss


for epoch in range(4):
    for images, labels in photos.as_numpy_iterator():
        weights, loss = step(weights, images, labels)
    print(f"epoch {epoch + 1}: loss {float(loss):.3f}")
