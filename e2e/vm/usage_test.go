package vm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The texts are as the kernel prints them, with a process name that is hard to parse.
func TestParseUsage(t *testing.T) {
	const stat = "812 (a ) b) S 1 812 812 0 -1 4194560 1 0 0 0 150 27 9 9 20 0 3 0 100\n"
	const status = "Name:\ta\nPid:\t812\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t1\n"
	const first = "Name:\ta\nPid:\t812\nVmRSS:\t    2048 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t1\n"
	const second = "Name:\ta\nPid:\t813\nvoluntary_ctxt_switches:\t30\nnonvoluntary_ctxt_switches:\t2\n"
	got, err := parseUsage(stat + status + first + second)
	want := Usage{CPU: 1770 * time.Millisecond, Switches: map[int]int64{812: 8, 813: 32}, RSS: 2 << 20, RSSAnon: 1 << 20}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("parsed usage differs (error %v), -want +got:\n%s", err, diff)
	}
	if n := got.SwitchesSince(Usage{Switches: map[int]int64{812: 3, 5: 100}}); n != 5+32 {
		t.Errorf("context switches since the earlier reading = %d, want 37", n)
	}
	for _, wrong := range []string{"", "812 (a) S 1", stat, stat + status, "no such file\n" + status + first} {
		if u, err := parseUsage(wrong); err == nil {
			t.Errorf("parse usage of %q = %+v, want an error", wrong, u)
		}
	}
}

func TestParseHistogram(t *testing.T) {
	const head = "# event histogram\n#\n# trigger info: hist:keys=common_pid:vals=hitcount:sort=hitcount:size=8192 [active]\n#\n\n"
	const lines = "{ common_pid:         12 } hitcount:          1\n{ common_pid:     104321 } hitcount:     123456\n"
	const foot = "\nTotals:\n    Hits: 123457\n    Entries: 2\n    Dropped: "
	got, err := parseHistogram(head + lines + foot + "0\n")
	if diff := cmp.Diff(map[int]int64{12: 1, 104321: 123456}, got); err != nil || diff != "" {
		t.Errorf("parsed histogram differs (error %v), -want +got:\n%s", err, diff)
	}
	for _, wrong := range []string{"", head + foot + "0\n", head + lines + foot + "5\n", head + lines} {
		if counts, err := parseHistogram(wrong); err == nil {
			t.Errorf("parse histogram of %q = %v, want an error", wrong, counts)
		}
	}
}
