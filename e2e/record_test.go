package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// replay decides on the agent's recording of an eviction as the agent did. With another policy it
// decides otherwise, and reports the difference.
func TestARecordIsDecidedAgain(t *testing.T) {
	n := startNode(t)
	n.startAgent("", "--record=/run/jettison/frames.jsonl.gz")
	victim := leakerBesideOthers(n)
	n.dies(victim)
	n.expectMemoryAvailable()
	n.agentLogs("evicted", 1)
	var frames string
	n.until("the record holds what the eviction did", func() error {
		text, err := n.ReadFile(n.ctx, "/run/jettison/frames.jsonl.gz", 0)
		if err != nil {
			return err
		}
		frames = filepath.Join(t.TempDir(), "frames.jsonl.gz")
		return os.WriteFile(frames, text, 0o644)
	})
	decided := jettison(t, "replay", frames)
	var evicted []string
	pressure := false
	for line := range bytes.Lines(decided) {
		var d struct {
			Conditions []string
			Evictions  []struct{ UID, Signal string }
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatalf("parse a line of replay: %v: %s", err, line)
		}
		pressure = pressure || slices.Contains(d.Conditions, "MemoryPressure")
		for _, e := range d.Evictions {
			evicted = append(evicted, e.UID)
		}
	}
	if len(evicted) == 0 || evicted[0] != string(victim.Object.UID) || !pressure {
		t.Errorf("evictions of replay = %v, want %s first; memory pressure %v:\n%s", evicted, victim.Object.UID, pressure, decided)
	}
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHard: {memory.available: 1Mi}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if diff := string(jettison(t, "replay", "--diff", other, frames)); !strings.Contains(diff, string(victim.Object.UID)) {
		t.Errorf("replay --diff does not name the victim:\n%s", diff)
	}
}

// jettison runs the program on this machine.
func jettison(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "../cmd/jettison"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("jettison with arguments %v failed: %v: %s", args, err, stderr.Bytes())
	}
	return out
}
