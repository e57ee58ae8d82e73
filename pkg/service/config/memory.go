package config

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// EnvMemoryLimit is the environment variable with the container's memory limit, bytes.
const EnvMemoryLimit = "MEMORY_LIMIT"

// LimitMemory makes the garbage collector work harder as the process comes near its container's memory limit, and gives
// the limit that it set, 0 for none. It leaves a tenth for what the collector does not see. GOMEMLIMIT, if set, has the
// last word.
func LimitMemory() (int64, error) {
	text := os.Getenv(EnvMemoryLimit)
	if text == "" || os.Getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return 0, fmt.Errorf("%s=%q is not a number of bytes", EnvMemoryLimit, text)
	}
	limit -= limit / 10
	debug.SetMemoryLimit(limit)
	return limit, nil
}
