#!/bin/bash
# What KubeVirt's virtctl runs in its pod, and attaches to.
exec /bin/bash
