package cgroup

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParsePSI(t *testing.T) {
	some := PSIData{17.45, 3.74, 0.8, 2516634 * time.Microsecond}
	full := PSIData{100, 0.01, 99.99, 0}
	const someLine, fullLine = "some avg10=17.45 avg60=3.74 avg300=0.80 total=2516634\n", "full avg10=100.00 avg60=0.01 avg300=99.99 total=0\n"
	for text, want := range map[string]PSIStats{
		someLine + fullLine: {some, full, true, true},
		someLine:            {Some: some, HasSome: true}, // cpu.pressure before v5.13
		fullLine:            {Full: full, HasFull: true}, // irq.pressure
		"most avg10=x\n" + fullLine + "some avg10=17.45 avg900=x new avg60=3.74 total=2516634 avg300=0.80": {some, full, true, true},
	} {
		var got PSIStats
		if err := ParsePSI([]byte(text), &got); err != nil || got != want {
			t.Errorf("ParsePSI of %q returned %+v with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "none\n", "some\n", "some avg10=0.00 avg60=0.00 avg300=0.00\n", "some avg10=0.00 avg60=0.00 total=0\n",
		"some avg10=0 avg60=0.00 avg300=0.00 total=0\n", "some avg10=0.0 avg60=0.00 avg300=0.00 total=0\n", "some avg10=-1.00 avg60=0.00 avg300=0.00 total=0\n",
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=9223372036854776\n", "some avg10=0.00 avg60= avg300=0.00 total=0\n", someLine + "full avg10\n"} {
		var got PSIStats
		if err := ParsePSI([]byte(text), &got); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParsePSI of malformed %q = %+v, error %v, want ErrMalformed", text, got, err)
		}
	}
}

func TestPressureReadsTheFileOfItsResource(t *testing.T) {
	files := map[string]string{"a/cgroup.procs": ""}
	for i, r := range []Resource{CPU, Memory, IO} {
		files["a/"+r.String()+".pressure"] = fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", i+1)
	}
	g := group(t, tree(t, files), "a")
	for i, r := range []Resource{CPU, Memory, IO} {
		var s PSIStats
		if err := g.Pressure(r, make([]byte, 1024), &s); err != nil || s.Some.Total != time.Duration(i+1)*time.Microsecond || s.HasFull {
			t.Errorf("pressure of resource %v = %+v, error %v", r, s, err)
		}
	}
	for _, r := range []Resource{-1, IO + 1} {
		if err := g.Pressure(r, make([]byte, 1024), new(PSIStats)); !errors.Is(err, unix.EINVAL) {
			t.Errorf("pressure of unknown resource %v: error %v", r, err)
		}
	}
}

// This machine cannot run with psi=0, so the test passes the error of such a kernel.
func TestPressureOff(t *testing.T) {
	err := pressureOff(fmt.Errorf("read cgroup /memory.pressure: %w", unix.EOPNOTSUPP))
	if !errors.Is(err, ErrPressureOff) || !errors.Is(err, unix.EOPNOTSUPP) || errors.Is(pressureOff(ErrVanished), ErrPressureOff) {
		t.Errorf("error of a kernel with psi=0 became %v", err)
	}
}

func BenchmarkParsePSI(b *testing.B) {
	text := recorded(b, "memory.pressure")["6.12/cgroup/kubepods/memory.pressure"]
	b.ReportAllocs()
	for b.Loop() {
		var s PSIStats
		if err := ParsePSI(text, &s); err != nil {
			b.Fatal(err)
		}
	}
}
