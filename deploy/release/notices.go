package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// separator precedes each text.
var separator = strings.Repeat("=", 80)

// notices returns the text of THIRD-PARTY-NOTICES: a list of the modules, and each text of a
// licence file once, below the names of its files.
func (p *program) notices() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s for %s/%s links these modules:\n\n", p.name, p.goos, p.goarch)
	owners := map[string][]string{}
	var texts []string
	for _, m := range p.modules {
		fmt.Fprintf(&out, "  %s %s (%s)\n", m.path, m.version, strings.Join(m.licenses, ", "))
		for _, f := range m.files {
			if !slices.Contains(texts, f.text) {
				texts = append(texts, f.text)
			}
			owners[f.text] = append(owners[f.text], fmt.Sprintf("%s %s: %s", m.path, m.version, f.name))
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", separator, strings.Join(owners[text], "\n"),
			strings.TrimRight(text, "\n"))
	}
	return out.Bytes()
}
