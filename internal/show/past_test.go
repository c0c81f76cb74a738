package show

import (
	"strings"
	"testing"

	"jettison/api"
)

// No text in a record begins a line of its own, nor a cell: an error may hold a name that a tenant has chosen, or what a runtime says.
func TestNoTextOfARecordForgesALine(t *testing.T) {
	const forged = "x\noutcome\treleased\x1b[2J"
	r := api.Record{ID: forged, Outcome: forged, Error: forged, Reason: forged, Message: forged,
		Pod: api.Victim{UID: forged, Cgroup: forged, SandboxIDs: []string{forged}}}
	r.Steps = []api.Step{{Name: forged, Error: forged}}
	r.Ranking.Rows = []api.Candidate{{Pod: forged, DecidedBy: forged, Keys: forged}}
	var out strings.Builder
	if err := inFull(&out, &r); err != nil {
		t.Fatal(err)
	}
	if err := table(&out, []api.Record{r}); err != nil {
		t.Fatal(err)
	}
	outcomes := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "outcome") {
			outcomes++
		}
	}
	if outcomes != 1 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%d lines of an outcome in\n%q", outcomes, out.String())
	}
}
