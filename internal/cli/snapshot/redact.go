package snapshot

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/internal/node/config"
)

// secret is the name of a field that may hold one. What ends with File, Path or Dir says where one
// is.
var secret = regexp.MustCompile(`(?i)token|password|passwd|secret|credential|privatekey|apikey`)

const hidden = "(redacted)"

// redacted is a configuration as it holds, every field of it, without what may be a secret.
func redacted(c *config.Loaded) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(c.Config); err != nil {
		return nil, err
	}
	hide(&root, false)
	text, err := yaml.Marshal(&root)
	if err != nil {
		return nil, err
	}
	return append([]byte("# from "+strings.Join(strings.Fields(c.From), " ")+"\n"), text...), nil
}

// hide puts something else in the place of each value below a name that may be of a secret.
func hide(n *yaml.Node, all bool) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			where := strings.HasSuffix(name, "File") || strings.HasSuffix(name, "Path") ||
				strings.HasSuffix(name, "Dir")
			hide(n.Content[i+1], all || secret.MatchString(name) && !where)
		}
	case yaml.ScalarNode:
		if all && n.Value != "" {
			n.SetString(hidden)
		}
	default:
		for _, child := range n.Content {
			hide(child, all)
		}
	}
}
