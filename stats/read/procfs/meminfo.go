package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"jettison/cgroup"
	"jettison/stats"
)

// ErrMalformed: a file of /proc does not have the expected format.
var ErrMalformed = errors.New("malformed")

// MemInfo holds the lines of /proc/meminfo that the agent uses, in bytes.
type MemInfo struct {
	Total     stats.Opt[uint64] // MemTotal
	Available stats.Opt[uint64] // MemAvailable (since v3.14)
	SwapTotal stats.Opt[uint64] // 0: the node has no swap
	SwapFree  stats.Opt[uint64]
}

// ParseMemInfo parses /proc/meminfo: lines of "Name: 123 kB" (fs/proc/meminfo.c). It skips
// unknown lines; a known line without a number of kB is malformed, and a missing one leaves its
// value absent. It stops after the last known line. It does not allocate.
func ParseMemInfo(b []byte, out *MemInfo) error {
	*out = MemInfo{}
	for line := range bytes.Lines(b) {
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		var dst *stats.Opt[uint64]
		switch string(line[:colon]) {
		case "MemTotal":
			dst = &out.Total
		case "MemAvailable":
			dst = &out.Available
		case "SwapTotal":
			dst = &out.SwapTotal
		case "SwapFree":
			dst = &out.SwapFree
		default:
			continue
		}
		kib, err := kibibytes(line[colon+1:])
		if err != nil {
			return err
		}
		*dst = stats.Some(kib << 10)
		if out.Total.OK && out.Available.OK && out.SwapTotal.OK && out.SwapFree.OK {
			return nil // skip two thirds of the file, because it is read hundreds of times a second
		}
	}
	return nil
}

// ParseHugePages returns the bytes of huge pages from meminfo: the line Hugetlb, of all sizes (since
// v4.17, mm/hugetlb.c hugetlb_report_meminfo), or else the pages of the default size. It does not
// allocate.
func ParseHugePages(b []byte) (uint64, error) {
	var pages, size uint64
	for line := range bytes.Lines(b) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "HugePages_Total":
			v, ok := cgroup.Decimal(bytes.TrimSpace(rest))
			if !ok {
				return 0, fmt.Errorf("%w: %.60q", ErrMalformed, line)
			}
			pages = v
		case "Hugepagesize", "Hugetlb":
			kib, err := kibibytes(rest)
			if err != nil {
				return 0, err
			}
			if string(name) == "Hugetlb" {
				return kib << 10, nil
			}
			size = kib << 10
		}
	}
	if size > 0 && pages > math.MaxUint64/size {
		return 0, fmt.Errorf("%w: %d huge pages of %d bytes", ErrMalformed, pages, size)
	}
	return pages * size, nil
}

func kibibytes(b []byte) (uint64, error) {
	number, ok := bytes.CutSuffix(bytes.TrimSpace(b), []byte(" kB"))
	v, isNumber := cgroup.Decimal(number)
	if !ok || !isNumber || v > math.MaxUint64>>10 {
		return 0, fmt.Errorf("%w: %.40q is not a number of kB", ErrMalformed, b)
	}
	return v, nil
}
