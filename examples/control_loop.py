"""A trained policy in the control loop of a robot: ten decisions a second, numpy in and numpy out.

First:    jaxrl train ppo_continuous --env=docking:Docking --config.stop.steps=200_000 --workdir=runs/docking
Command:  python control_loop.py runs/docking
"""

import sys
import time

import numpy as np

import jaxrl

PERIOD = 0.1


class Cart:
    """Stands for the robot's driver: sensors and a motor."""

    position, speed = 1.5, 0.0

    def read(self):
        return np.array([self.position, self.speed], np.float32)

    def push(self, force):
        self.speed += PERIOD * (float(np.clip(force, -1, 1)) - 0.1 * self.speed)
        self.position += PERIOD * self.speed

    def docked(self):
        return abs(self.position) < 0.05 and abs(self.speed) < 0.1


def main(run, checkpoint="best", period=PERIOD):
    policy = jaxrl.load(run, checkpoint, trust=True)
    cart, carry, steps, slowest = Cart(), None, 0, 0.0
    policy.act(cart.read())  # compiles, before the robot moves
    while steps < 100 and not cart.docked():
        started = time.monotonic()
        action, carry = policy.act(cart.read(), carry)
        slowest = max(slowest, time.monotonic() - started)
        cart.push(action[0])
        steps += 1
        time.sleep(max(0.0, started + period - time.monotonic()))
    print(f"{steps} steps, at {cart.position:.2f} m, {cart.speed:.2f} m/s")
    print(f"slowest decision: {1000 * slowest:.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1])
