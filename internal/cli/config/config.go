// Package config implements jettison config: it prints the effective configuration with the origin
// of each value, checks a configuration file, and prints a default file.
package config

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"

	"jettison/internal/base/output"
	"jettison/internal/node/config"
)

// printSettings prints every effective value with its origin, then the notes. The YAML format is an
// equivalent configuration file of the agent, with the origins as comments.
func printSettings(l *config.Loaded, format output.Format, w io.Writer) error {
	switch format {
	case output.AsJSON:
		return printJSON(l, w)
	case output.AsYAML:
		return printYAML(l, w)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIELD\tVALUE\tFROM")
	for _, s := range l.Settings() {
		value, err := flow(s.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name(), value, s.Origin)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return printNotes(l, w)
}

// printNotes prints the origin of the configuration and the warnings.
func printNotes(l *config.Loaded, w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\nconfiguration: %s\ncontainerRuntimeEndpoint: %s\n", l.From,
		l.EndpointFrom); err != nil {
		return err
	}
	return warnings(l, w)
}

func warnings(l *config.Loaded, w io.Writer) error {
	for _, text := range l.Warnings {
		if _, err := fmt.Fprintln(w, "warning:", text); err != nil {
			return err
		}
	}
	return nil
}

// flow formats a value on one line.
func flow(value any) (string, error) {
	text, err := json.Marshal(value)
	if s, ok := value.(string); ok && s != "" {
		return s, nil
	}
	return string(text), err
}

// printed is the JSON format of printSettings.
type printed struct {
	From         string    `json:"from"`
	EndpointFrom string    `json:"endpointFrom,omitempty"`
	Warnings     []string  `json:"warnings"`
	Settings     []setting `json:"settings"`
}

type setting struct {
	Field []string `json:"field"`
	Value any      `json:"value"`
	config.Origin
}

func printJSON(l *config.Loaded, w io.Writer) error {
	out := printed{From: l.From, EndpointFrom: l.EndpointFrom,
		Warnings: append([]string{}, l.Warnings...)}
	for _, s := range l.Settings() {
		out.Settings = append(out.Settings, setting{s.Field, s.Value, s.Origin})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func printYAML(l *config.Loaded, w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, head := range [][2]string{{"apiVersion", config.APIVersionAgent},
		{"kind", config.KindAgent}} {
		root.Content = append(root.Content, word(head[0]), word(head[1]))
	}
	below := map[string]*yaml.Node{}
	for _, s := range l.Settings() {
		key, value := word(s.Field[len(s.Field)-1]), &yaml.Node{}
		if err := value.Encode(s.Value); err != nil {
			return err
		}
		if value.Style = 0; value.Kind != yaml.ScalarNode {
			value.Style = yaml.FlowStyle
		}
		value.LineComment = s.Origin.String()
		into := root
		if len(s.Field) > 1 {
			if into = below[s.Field[0]]; into == nil {
				into = &yaml.Node{Kind: yaml.MappingNode}
				below[s.Field[0]] = into
				root.Content = append(root.Content, word(s.Field[0]), into)
			}
		}
		into.Content = append(into.Content, key, value)
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return err
	}
	return e.Close()
}

func word(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// check reads a file ("-": stdin) and prints that it is valid. An error names the file, line and
// field. check does not compare values with the node, such as a threshold with its capacity.
func check(ctx context.Context, path string, stdin *os.File, w io.Writer) error {
	l, err := config.Check(ctx, path, stdin)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s is valid: %s\n", l.Path, l.Kind); err != nil {
		return err
	}
	if text := l.UncoveredImageFs(); text != "" {
		l.Warnings = append(l.Warnings, text)
	}
	return warnings(l, w)
}
