package policyfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/cluster/deschedule"
	"jettison/internal/base/strict"
)

// versionV1alpha1 is the API version that Migrate converts.
const versionV1alpha1 = "descheduler/v1alpha1"

// Decode decodes a policy, sets its defaults and validates it. Errors contain the file name and
// the line; several errors are joined.
func Decode(text []byte, name string) (*deschedule.Policy, error) {
	root, err := rootNode(text, name)
	if err != nil {
		return nil, err
	}
	s := newChecker(name)
	version, line := scalar(root, "apiVersion")
	switch version {
	case deschedule.APIVersion:
	case versionV1alpha1:
		return nil, s.fault(line,
			"apiVersion %s is no longer supported: convert it to %s with \"jettison-cluster deschedule migrate\"",
			versionV1alpha1,
			deschedule.APIVersion)
	default:
		return nil, s.wrongVersion(root, line, "apiVersion %q: want %s", version, deschedule.APIVersion)
	}
	if kind, line := scalar(root, "kind"); kind != deschedule.Kind {
		return nil, s.fault(line, "kind %q: want %s", kind, deschedule.Kind)
	}
	s.Check(root, reflect.TypeFor[deschedule.Policy](), nil)
	if faults := s.faults(); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	policy := &deschedule.Policy{}
	if err := decodeInto(root, policy); err != nil {
		return nil, s.fault(root.Line, "%v", err)
	}
	if err := decodeArgs(policy); err != nil {
		return nil, s.fault(root.Line, "%v", err)
	}
	if err := policy.Complete(); err != nil {
		return nil, s.withLines(err)
	}
	return policy, nil
}

// decodeArgs converts the checked arguments of plugins to their Go types. It skips unknown
// plugins: Complete reports them.
func decodeArgs(p *deschedule.Policy) error {
	for i := range p.Profiles {
		for j := range p.Profiles[i].PluginConfig {
			c := &p.Profiles[i].PluginConfig[j]
			args := deschedule.NewArgs(c.Name)
			if c.Args == nil || args == nil {
				continue
			}
			text, err := json.Marshal(c.Args)
			if err == nil {
				err = json.Unmarshal(text, args)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			c.Args = args
		}
	}
	return nil
}

// wrongVersion returns the error about a file that is no policy of the wanted version. If the file
// contains a policy, the error names its place.
func (s *checker) wrongVersion(root *yaml.Node, line int, format string, args ...any) error {
	if kind, _ := scalar(root, "kind"); kind == "ConfigMap" {
		if data := fieldOf(root, "data"); data != nil {
			for i := 0; i+1 < len(data.Content); i += 2 {
				if key := data.Content[i]; strings.Contains(data.Content[i+1].Value, deschedule.Kind) {
					return s.fault(key.Line, "file is a ConfigMap: save the text of data.%s, "+
						"which is the policy, as a file of its own", key.Value)
				}
			}
		}
	}
	if policy := fieldOf(root, "deschedulerPolicy"); policy != nil {
		return s.fault(policy.Line, "file has the values of a Helm chart: save the content of "+
			"deschedulerPolicy, which is the policy, as a file of its own with apiVersion and kind")
	}
	return s.fault(line, format, args...)
}

// fieldOf returns the value of a top-level field; nil: absent.
func fieldOf(root *yaml.Node, field string) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == field {
			return root.Content[i+1]
		}
	}
	return nil
}

// errorsOf returns the errors that err joins.
func errorsOf(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// withLines adds lines to errors of Policy.Complete.
func (s *checker) withLines(err error) error {
	all := errorsOf(err)
	out := make([]error, 0, len(all))
	for _, fault := range all {
		line := 1
		var f *deschedule.Fault
		if errors.As(fault, &f) {
			line = s.Lines.Nearest(f.Path, ".")
		}
		out = append(out, s.fault(line, "%v", fault))
	}
	return errors.Join(out...)
}

// rootNode returns the root node of the single document in a file.
func rootNode(text []byte, name string) (*yaml.Node, error) {
	file := strict.Document{APIVersion: deschedule.APIVersion, Kind: deschedule.Kind,
		SecondOnly: true, FurtherFirst: true}
	root, err := file.Root(text)
	var syntax *strict.SyntaxError
	var wrong *strict.FieldError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("policy %s: not YAML: %s", name, strings.TrimPrefix(syntax.Err.Error(),
			"yaml: "))
	case errors.As(err, &wrong):
		return nil, newChecker(name).fault(wrong.Line, "%w", wrong.Err)
	}
	return root, err
}

// scalar returns the value of a top-level field and its line.
func scalar(root *yaml.Node, field string) (string, int) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == field {
			return root.Content[i+1].Value, root.Content[i].Line
		}
	}
	return "", root.Line
}

// decodeInto decodes a node into an API type by way of JSON, as API types have only JSON tags.
func decodeInto(n *yaml.Node, v any) error {
	var plain any
	if err := n.Decode(&plain); err != nil {
		return err
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
