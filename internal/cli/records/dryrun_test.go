package records

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

// --dry-run lists the pods that a dry run would have evicted: one line for each pod and threshold, the most
// frequent first. Evictions that happened do not count, and missing records are reported.
func TestDryRunSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	record := func(day int, pod, more string) string {
		return fmt.Sprintf(`{"version":1,"id":"202611%02dT080000.000000Z-0001","pod":{"uid":"%s","namespace":"shop","name":"%[2]s","qos":"Burstable"},`+
			`"signal":"memory.available","threshold":"memory.available<100Mi","began":{"time":"2026-11-%02[1]dT08:00:00Z"},"ranking":{},`+
			`"decided":{"available":1,"text":"%[1]dMi"},"outcome":"dryRun","dryRun":true%[3]s}`+"\n", day, pod, more)
	}
	text := record(19, "web", "") + `{"version":1,"id":"20261119T120000.000000Z-0001","pod":{},"began":{},"ranking":{},"outcome":"lost","error":"rotated"}` + "\n" +
		record(20, "web", "") + record(21, "leaker", "") +
		record(22, "web", `,"repeats":7,"lastDecided":"2026-11-23T07:30:00Z"`) +
		strings.NewReplacer(`"dryRun":true`, `"over":true`, `"outcome":"dryRun"`, `"outcome":"back"`).Replace(record(24, "evicted", ""))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "POD          THRESHOLD               TIMES  FIRST                 LAST                  OBSERVED\n"
	const lost = "jettison: records: FILE: records up to 20261119T120000.000000Z-0001 are missing: rotated\n"
	at := func(day, hour int) time.Time { return time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC) }
	for name, c := range map[string]struct {
		query              query
		wantOut, wantError string
	}{
		"all": {query{}, head +
			"shop/web     memory.available<100Mi     10  2026-11-19T08:00:00Z  2026-11-23T07:30:00Z      22Mi\n" +
			"shop/leaker  memory.available<100Mi      1  2026-11-21T08:00:00Z  2026-11-21T08:00:00Z      21Mi\n", lost},
		"last days": {query{since: at(21, 9)}, // of the day's record that began before, too
			"POD       THRESHOLD               TIMES  FIRST                 LAST                  OBSERVED\n" +
				"shop/web  memory.available<100Mi      8  2026-11-22T08:00:00Z  2026-11-23T07:30:00Z      22Mi\n", ""},
		"within a record": {query{since: at(23, 0), pod: "shop/web"},
			"POD       THRESHOLD               TIMES  FIRST                 LAST                  OBSERVED\n" +
				"shop/web  memory.available<100Mi      8  2026-11-22T08:00:00Z  2026-11-23T07:30:00Z      22Mi\n", ""},
		"none": {query{since: at(24, 0)}, "none of 5 records in FILE matches --since and --dry-run\n", ""},
		"as data": {query{since: at(21, 0), pod: "leaker", format: output.AsJSONL},
			`{"pod":{"uid":"leaker","namespace":"shop","name":"leaker","qos":"Burstable"},"signal":"memory.available",` +
				`"threshold":"memory.available<100Mi","times":1,"first":"2026-11-21T08:00:00Z","last":"2026-11-21T08:00:00Z",` +
				`"decided":{"available":1,"text":"21Mi"}}` + "\n", ""},
		"no data": {query{since: at(24, 0), format: output.AsJSON}, "[]\n", ""},
	} {
		var out, errs strings.Builder
		c.query.file, c.query.dryRun = path, true
		if err := c.query.print(t.Context(), terminal.Fixed(&out, 0), &errs); err != nil {
			t.Errorf("%s: print of the summary: %v", name, err)
		}
		if want := strings.ReplaceAll(c.wantOut, "FILE", path); out.String() != want {
			t.Errorf("%s: output\n%s, want\n%s", name, out.String(), want)
		}
		if want := strings.ReplaceAll(c.wantError, "FILE", path); errs.String() != want {
			t.Errorf("%s: stderr %q, want %q", name, errs.String(), want)
		}
	}
}
