package drill

import (
	"encoding/json"

	"toolguard.dev/registry"
)

// Sample makes arguments up for a tool.
func Sample(t registry.Tool) (json.RawMessage, error) {
	e, err := registry.Compile(t)
	if err != nil {
		return nil, err
	}
	return sample(e, 0, func(any) bool { return true })
}
