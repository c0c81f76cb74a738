package check

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"jettison/internal/kill"
	"jettison/internal/show"
	"jettison/internal/sources"
)

// ladderPurpose is what each rung is for.
var ladderPurpose = map[string]string{
	"cgroup.kill": "kills a pod by one write",
	"pidfd":       "kills it process by process, where that is missing or refused",
	"cpu":         "lets a pod that is starved of CPU die",
	"mrelease":    "frees its memory from threads of the agent's",
}

// printLadder runs the self-test, where this process may write to cgroups.
func printLadder(ctx context.Context, w io.Writer, s *sources.Sources) {
	fmt.Fprintln(w, "\nRUNG\tANSWER\tTIME\tDETAIL\tWHAT FOR")
	if s.FS.ReadOnly() || os.Geteuid() != 0 {
		fmt.Fprintln(w, "all\tnot tested\t-\tneeds root and a writable cgroup v2 hierarchy (docs/use/privileges.md)\t-")
		return
	}
	for _, r := range kill.SelfTest(ctx, s.FS, s.Reader.Self()).Rungs {
		took, detail := r.Took.Round(10*time.Microsecond).String(), "-"
		if r.Err != nil {
			took, detail = "-", show.OneLine(r.Err.Error())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Rung, r.Outcome, took, detail, ladderPurpose[r.Rung])
	}
}
