package records

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
)

// keeper returns a Keeper that writes to a directory, or to no file.
func keeper(t *testing.T, dir string, dry bool) *Keeper {
	t.Helper()
	k, _, _ := StartKeeper(time.Now(), KeeperOptions{
		Dir: dir, Proc: t.TempDir(), Agent: "test", DryRun: dry, Log: logthrottle.New(slog.New(slog.DiscardHandler)),
	})
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func recent(k *Keeper) []*api.Record {
	out, _ := k.queue.Recent()
	return out
}

// recentRecords returns the records in memory with their outcomes.
func recentRecords(k *Keeper) (out []string) {
	for _, r := range recent(k) {
		out = append(out, r.ID+" "+string(r.Outcome))
	}
	return out
}

// The last records are in memory in their current version, each once. A record that a reader has
// does not change.
func TestRecentRecords(t *testing.T) {
	k := keeper(t, "", false)
	r := api.Record{Version: Version, ID: "a", Outcome: api.OutcomeRunning, Steps: []api.Step{{Name: "pin\x1b"}}}
	k.Begin(&r)
	before := recent(k)
	r.Steps, r.Outcome = []api.Step{{Name: "other"}}, api.OutcomeBack
	k.Update(&r)
	if s := before[0]; s.Outcome != api.OutcomeRunning || s.Steps[0].Name != "pin?" || s.Agent != "test" {
		t.Errorf("what a reader has: %+v", s)
	}
	if got := recent(k); len(got) != 1 || got[0].Outcome != api.OutcomeBack || got[0].Steps[0].Name != "other" {
		t.Errorf("as it is now: %+v", got)
	}
	for i := range 2 * recentSize {
		k.Begin(&api.Record{Version: Version, ID: fmt.Sprintf("b%03d", i)})
	}
	if got := recentRecords(k); len(got) != recentSize || got[0] != "b032 " || got[recentSize-1] != "b063 " {
		t.Errorf("%d records in memory %v, want the newest %d", len(got), got, recentSize)
	}
}

// The records of the previous process are in memory too. In a dry run the records are those of
// evictions that it would have begun.
func TestRecentRecordsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	first := keeper(t, dir, false)
	for i := range recentSize + 2 {
		first.Begin(&api.Record{Version: Version, ID: fmt.Sprintf("a%03d", i), Outcome: api.OutcomeBack})
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := keeper(t, dir, false)
	if got := recentRecords(second); len(got) != recentSize || got[0] != "a002 back" {
		t.Errorf("%d records in memory of the next process %v, want the newest %d", len(got), got, recentSize)
	}
	dry := keeper(t, "", true)
	dry.RecordDryRun(&api.Record{Version: Version, ID: "w"})
	if got := recentRecords(dry); !slices.Equal(got, []string{"w dryRun"}) {
		t.Errorf("records in memory of a dry run = %v, want w dryRun", got)
	}
	var none *Keeper
	none.Update(&api.Record{})
}
