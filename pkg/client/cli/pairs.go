package cli

import "strings"

// Pairs reads a flag that was given as KEY=VALUE, once for each key. All after the first = is the value, commas and
// quotes as well. Of a key that comes twice the last value counts.
func Pairs(flag string, given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(given))
	for _, pair := range given {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, UsageErrorf("--%s: %q is not KEY=VALUE", flag, pair)
		}
		out[key] = value
	}
	return out, nil
}
