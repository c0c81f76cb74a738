package vm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// persistentDrive returns the QEMU argument of a disk with its own write cache, whose power can be cut.
// cache=writeback announces the cache to the guest, so the guest flushes data that must survive.
// QEMU answers a flush when the file has the data.
//
// Killing QEMU loses the guest's memory, as a power cut does. It also loses every unflushed piece
// of 64 KiB that was written for the first time: QEMU keeps the format's tables, which locate the
// pieces, in memory until the flush. Such a piece returns to its old content, even if later writes
// survive: a cache that loses power keeps no order.
//
// The host's page cache survives: QEMU dies, not this machine. With snapshot=on all data would be
// lost. cache=unsafe ignores flushes, so flushed data would be lost, too.
func persistentDrive(file string) string {
	return "file=" + file + ",if=virtio,format=qcow2,cache=writeback"
}

// overlay makes a qcow2 file, version 3, that is empty on top of a raw image
// (docs/interop/qcow2.txt of QEMU). qemu-img would do the same, but is in another package.
func overlay(file, base string) error {
	info, err := os.Stat(base)
	if err != nil {
		return err
	}
	const (
		clusterBits  = 16
		cluster      = 1 << clusterBits
		headerLength = 104
		formatMark   = 0xE2792ACA // an extension: the format of the image below
	)
	// One table entry is a table of cluster/8 entries of one cluster each.
	tables := (info.Size() + cluster*cluster/8 - 1) / (cluster * cluster / 8)
	name := []byte(base)
	if tables*8 > cluster || len(name) > 1023 {
		return fmt.Errorf("%s is too large for a disk, or its path too long", base)
	}
	// Four clusters: the header, the table of reference counts, its first block, the first-level table.
	out := make([]byte, 4*cluster)
	big := binary.BigEndian
	copy(out, "QFI\xfb")
	big.PutUint32(out[4:], 3)
	nameAt := headerLength + 16 + 8 // behind the extensions: the format, and the end
	big.PutUint64(out[8:], uint64(nameAt))
	big.PutUint32(out[16:], uint32(len(name)))
	big.PutUint32(out[20:], clusterBits)
	big.PutUint64(out[24:], uint64(info.Size()))
	big.PutUint32(out[36:], uint32(tables))
	big.PutUint64(out[40:], 3*cluster)
	big.PutUint64(out[48:], cluster)
	big.PutUint32(out[56:], 1)
	big.PutUint32(out[96:], 4) // 2^4 bits for a reference count
	big.PutUint32(out[100:], headerLength)
	big.PutUint32(out[headerLength:], formatMark)
	big.PutUint32(out[headerLength+4:], 3)
	copy(out[headerLength+8:], "raw")
	copy(out[nameAt:], name)
	big.PutUint64(out[cluster:], 2*cluster)
	for i := range 4 {
		big.PutUint16(out[2*cluster+2*i:], 1)
	}
	return os.WriteFile(file, out, 0o600)
}

// CutPower ends the node as a power cut does, and boots it again from its disk (Options.Disk). It
// returns when the runtime answers. No pod runs then, and all memory content is lost.
func (n *Node) CutPower(ctx context.Context) error {
	if n.options.Disk == "" {
		return errors.New("cut power: the node keeps no disk")
	}
	n.Close() // SIGKILL
	n.console, n.pods = newConsole(), nil
	if err := n.powerOn(ctx, n.options, n.image); err != nil {
		return fmt.Errorf("boot node after a power cut: %w\n%s", err, n.Console())
	}
	return n.connect(ctx)
}
