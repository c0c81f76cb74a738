package procfs

import (
	"errors"
	"testing"
)

const zoneinfo = `Node 0, zone      DMA

  per-node stats
      nr_inactive_anon 1234
  pages free     3840
        boost    0
        min      90
  pagesets
    cpu: 0
              count:    7
              high:     28
              batch:    7
  vm stats threshold: 4
    cpu: 1
              count:    0
Node 0, zone    DMA32
  pagesets
    cpu: 0
              count:    24507
`

func TestParseZoneInfo(t *testing.T) {
	if pages, err := ParseZoneInfo([]byte(zoneinfo)); pages != 24514 || err != nil {
		t.Errorf("ParseZoneInfo returned %d pages with error %v", pages, err)
	}
	for _, bad := range []string{"", "Node 0, zone DMA\n", "count:\n", "count: x\n", "count: -1\n", "count: 99999999999\n"} {
		if pages, err := ParseZoneInfo([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseZoneInfo of malformed %q returned %d with error %v", bad, pages, err)
		}
	}
}

func FuzzParseZoneInfo(f *testing.F) {
	f.Add([]byte(zoneinfo))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := ParseZoneInfo(b); err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	})
}
