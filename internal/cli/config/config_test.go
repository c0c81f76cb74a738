package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"jettison/internal/node/config"
)

const own = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHard: {memory.available: 1Gi}\nregisterWithTaints: [{key: a, effect: NoExecute}]\n"

func load(t *testing.T, text string) *config.Loaded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The table has a line for each value with its origin.
func TestTable(t *testing.T) {
	l := load(t, own)
	var out bytes.Buffer
	if err := printSettings(l, "table", &out); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(strings.ReplaceAll(line, ": ", ":"))
		lines[fields[0]] = strings.Join(fields[1:], " ")
		if len(fields) == 0 {
			break
		}
		if fields[0] == "jettison" || strings.HasPrefix(line, "stateDir") {
			break
		}
	}
	for name, want := range map[string]string{
		"FIELD": "VALUE FROM", "evictionHard:memory.available": "1Gi " + l.Path + ":3 (ownFile)", "maxPods": "110 default", "kubeReserved": "{} default",
		"socketGroup": `"" default`, "containerGC:minAge": "0s default", "enforceNodeAllocatable": `["pods"] default`,
	} {
		if lines[name] != want {
			t.Errorf("line of %s = %q, want %q", name, lines[name], want)
		}
	}
	if !strings.Contains(out.String(), "\nconfiguration: "+l.Path+"\n") {
		t.Errorf("output lacks the expected line:\n%s", out.String())
	}
}

// The YAML output is a file that loads as the same configuration.
func TestYAMLRoundTrip(t *testing.T) {
	l := load(t, own+"breaker: false\nhostnameOverride: \"7\"\ncontainerGC: {minAge: 90s}\nnodeLabels: {a: \"true\"}\n")
	var out bytes.Buffer
	if err := printSettings(l, "yaml", &out); err != nil {
		t.Fatal(err)
	}
	again := load(t, out.String())
	if diff := cmp.Diff(l.Config, again.Config, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(config.Config{}, "Sysctls", "Thresholds")); diff != "" {
		t.Errorf("configuration after the round trip differs: %s\n%s", diff, out.String())
	}
	if !strings.Contains(out.String(), "breaker: false # "+l.Path+":5 (ownFile)\n") {
		t.Errorf("output lacks the expected line:\n%s", out.String())
	}
}

func TestJSON(t *testing.T) {
	l := load(t, own)
	l.EndpointFrom, l.Warnings = "found", []string{"odd"}
	var out bytes.Buffer
	if err := printSettings(l, "json", &out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		From, EndpointFrom string
		Warnings           []string
		Settings           []struct {
			Field         []string
			Value         any
			Source, Where string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.From != l.Path || got.EndpointFrom != "found" || len(got.Warnings) != 1 {
		t.Fatalf("JSON output: error %v, got %+v", err, got)
	}
	s := got.Settings[0]
	if strings.Join(s.Field, " ") != "evictionHard memory.available" || s.Value != "1Gi" || s.Source != "ownFile" || s.Where != l.Path+":3" {
		t.Errorf("first setting = %+v, want evictionHard memory.available 1Gi of ownFile line 3", s)
	}
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	for text, want := range map[string]string{
		own: path + " is valid: AgentConfiguration\n", config.DefaultFile: path + " is valid: AgentConfiguration\n",
		own + "imageGCHighThresholdPercent: 80\n": path + " is valid: AgentConfiguration\nwarning: imageGCLowThresholdPercent: 80 is not less than " +
			"imageGCHighThresholdPercent, 80: a kubelet rejects this\n",
		own + "gat: 1\n": "!config " + path + `:5: unknown field "gat": did you mean "gate"?`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		got := ""
		if err := check(t.Context(), path, os.Stdin, &out); err != nil {
			got = "!" + err.Error()
		}
		if got += out.String(); got != want {
			t.Errorf("check of %q prints %q, want %q", text, got, want)
		}
	}
}
