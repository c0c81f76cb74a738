package cgroup

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Resource is a resource that tasks stall for.
type Resource int

// The resources with a pressure file.
const (
	CPU Resource = iota
	Memory
	IO
)

var resourceNames = [...]string{CPU: "cpu", Memory: "memory", IO: "io"}

// String returns the resource's name: the file is NAME.pressure in a cgroup, PROC/pressure/NAME
// for the node.
func (r Resource) String() string {
	if r < 0 || int(r) >= len(resourceNames) {
		return fmt.Sprintf("Resource(%d)", int(r))
	}
	return resourceNames[r]
}

// ErrPressureOff: the kernel does not account for pressure (booted with psi=0). A read fails with
// EOPNOTSUPP (v6.12 kernel/sched/psi.c, psi_show). If the kernel does not create the files in this
// case (kernel/cgroup/cgroup.c, cgroup_psi_enabled), the error is os.ErrNotExist instead.
var ErrPressureOff = errors.New("pressure stall information is off")

// PSIData is one line of a pressure file.
type PSIData struct {
	// share of the last 10, 60 and 300 seconds in which tasks stalled, in percent
	Avg10, Avg60, Avg300 float64
	// time stalled since the group was created; the kernel counts microseconds
	Total time.Duration
}

// PSIStats holds a pressure file (v6.12 kernel/sched/psi.c, psi_show;
// Documentation/accounting/psi.rst).
type PSIStats struct {
	Some PSIData // at least one task stalled
	Full PSIData // all tasks stalled at the same time

	// The lines that the file has: cpu.pressure has no full line before v5.13, and irq.pressure has
	// no some line.
	HasSome, HasFull bool
}

// ParsePSI parses a pressure file, of a cgroup or PROC/pressure/*:
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//
// A known line must have all four numbers, and at least one known line must exist. Unknown lines
// and keys are skipped. It does not allocate.
func ParsePSI(b []byte, out *PSIStats) error {
	*out = PSIStats{}
	for len(b) > 0 {
		var kind, pairs []byte
		kind, pairs, b = nextPair(b)
		var err error
		switch string(kind) {
		case "some":
			out.HasSome, err = true, parsePSILine(pairs, &out.Some)
		case "full":
			out.HasFull, err = true, parsePSILine(pairs, &out.Full)
		}
		if err != nil {
			return err
		}
	}
	if !out.HasSome && !out.HasFull {
		return fmt.Errorf("%w: neither some nor full", ErrMalformed)
	}
	return nil
}

func parsePSILine(pairs []byte, out *PSIData) error {
	seen := 0
	for len(pairs) > 0 {
		var pair []byte
		pair, pairs = cut(pairs, ' ')
		key, value := cut(pair, '=')
		var err error
		switch string(key) {
		case "avg10":
			seen, err = seen|1, storePercent(&out.Avg10, value)
		case "avg60":
			seen, err = seen|2, storePercent(&out.Avg60, value)
		case "avg300":
			seen, err = seen|4, storePercent(&out.Avg300, value)
		case "total":
			seen, err = seen|8, storeTime(&out.Total, key, value)
		}
		if err != nil {
			return err
		}
	}
	if seen != 15 {
		return missing("avg10, avg60, avg300, total")
	}
	return nil
}

// storePercent parses a number with two decimal places, in the kernel's format "%lu.%02lu".
func storePercent(dst *float64, value []byte) error {
	whole, hundredths := cut(value, '.')
	w, okW := Decimal(whole)
	h, okH := Decimal(hundredths)
	if !okW || !okH || len(hundredths) != 2 || w > 1e6 {
		return fmt.Errorf("%w: %.40q is not a percentage", ErrMalformed, string(value))
	}
	*dst = float64(w*100+h) / 100
	return nil
}

// Pressure reads cpu.pressure, memory.pressure or io.pressure into out. For the root cgroup it is
// the pressure of the node, as in PROC/pressure. ErrPressureOff, os.ErrNotExist: the kernel does
// not account for pressure, or cgroup.pressure disables it.
func (g *Group) Pressure(r Resource, buf []byte, out *PSIStats) error {
	if r < 0 || int(r) >= len(resourceNames) {
		return fmt.Errorf("read cgroup %s: no such file: %w", g.file(r.String()+".pressure"), unix.EINVAL)
	}
	which := fileCPUPressure + int(r)
	b, err := g.readKept(which, buf)
	if err != nil {
		return pressureOff(err)
	}
	if err := ParsePSI(b, out); err != nil {
		return g.parseError(keptFiles[which], err)
	}
	return nil
}

// pressureOff turns the error of a kernel with psi=0 into ErrPressureOff.
func pressureOff(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", ErrPressureOff, err)
	}
	return err
}
