package cgroup

import (
	"bytes"
	"fmt"
	"math"
)

// IOStat holds the bytes that a group and its descendants have read from and written to a device
// since the group was created (v6.12 block/blk-cgroup.c, blkcg_print_one_stat).
type IOStat struct {
	ReadBytes, WriteBytes uint64
}

// field returns the field for a key; nil if the key is unknown.
func (s *IOStat) field(key []byte) *uint64 {
	switch string(key) {
	case "rbytes":
		return &s.ReadBytes
	case "wbytes":
		return &s.WriteBytes
	}
	return nil
}

// Add adds with saturation, because a sum that wrapped around would look like a reset of the
// counters.
func (s *IOStat) Add(o IOStat) {
	s.ReadBytes += min(o.ReadBytes, math.MaxUint64-s.ReadBytes)
	s.WriteBytes += min(o.WriteBytes, math.MaxUint64-s.WriteBytes)
}

// ParseIOStat parses io.stat, nested keyed: "MAJOR:MINOR KEY=VALUE ...", one line per device. It
// calls visit for each device with at least one known key. It skips other devices and unknown keys
// (cost.*, use_delay). The kernel may write the name of an unused device without numbers ("8:0 ").
// Kernels v5.15 to v5.18 then omit the line end too, so that one line has two devices (fixed by
// 3607849df478). ParseIOStat does not allocate.
func ParseIOStat(b []byte, visit func(major, minor uint32, s IOStat)) error {
	for len(b) > 0 {
		var line []byte
		line, b = cut(b, '\n')
		if err := parseIOLine(line, visit); err != nil {
			return err
		}
	}
	return nil
}

func parseIOLine(line []byte, visit func(major, minor uint32, s IOStat)) error {
	var major, minor uint32
	var s IOStat
	named, known := false, false // the line has named a device; the device has a known key
	for len(line) > 0 {
		var word []byte
		if word, line = cut(line, ' '); len(word) == 0 {
			continue
		}
		key, value, isPair := bytes.Cut(word, []byte("="))
		switch a, b, isDevice := device(word); {
		case isDevice:
			if known {
				visit(major, minor, s)
			}
			major, minor, s, named, known = a, b, IOStat{}, true, false
		case !named && string(word) == noDevice:
			return nil
		case !named:
			return fmt.Errorf("%w: %.40q is not MAJOR:MINOR", ErrMalformed, string(word))
		case isPair:
			if dst := s.field(key); dst != nil {
				if err := store(dst, key, value); err != nil {
					return err
				}
				known = true
			}
		}
	}
	if known {
		visit(major, minor, s)
	}
	return nil
}

// noDevice is the name of a device that is being removed (v6.12 mm/backing-dev.c,
// bdi_dev_name).
const noDevice = "(unknown)"

// device parses "MAJOR:MINOR".
func device(word []byte) (major, minor uint32, ok bool) {
	before, after := cut(word, ':')
	a, okA := Decimal(before)
	b, okB := Decimal(after)
	return uint32(a), uint32(b), okA && okB && a <= math.MaxUint32 && b <= math.MaxUint32
}

// IOStat reads io.stat and sums it over all devices into out. Traffic through stacked devices
// (dm, md, loop) counts once for each layer.
func (g *Group) IOStat(buf []byte, out *IOStat) error {
	*out = IOStat{}
	return g.IODevices(buf, func(_, _ uint32, s IOStat) { out.Add(s) })
}

// IODevices reads io.stat and calls visit for each device.
func (g *Group) IODevices(buf []byte, visit func(major, minor uint32, s IOStat)) error {
	b, err := g.readKept(fileIOStat, buf)
	if err != nil {
		return err
	}
	if err := ParseIOStat(b, visit); err != nil {
		return g.parseError("io.stat", err)
	}
	return nil
}
