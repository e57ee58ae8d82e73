package agent

import "encoding/json"

// Command returns the JSON of a command for the agent. arguments may be nil.
func Command(name string, arguments map[string]any) string {
	data, err := json.Marshal(struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{name, arguments})
	if err != nil { // strings, numbers and lists of them only
		panic(err)
	}
	return string(data)
}
