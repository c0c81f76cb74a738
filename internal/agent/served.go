package agent

import (
	"cmp"
	"fmt"

	"jettison/cgroup"
	"jettison/internal/agent/admission"
	"jettison/internal/agent/nodestats"
	"jettison/internal/agent/serve/remote"
	"jettison/internal/node/socketpath"
	"jettison/stats/read"
)

// stats creates the Taker, which reads the node and its pods on request, with its own reader.
func (b *builder) stats() *nodestats.Taker {
	o := b.o
	mount := b.s.FS.Mount()
	b.taker = nodestats.New(nodestats.Options{
		Node: cmp.Or(o.Config.HostnameOverride, admission.Hostname(cmp.Or(o.ProcMount, "/proc"))),
		Open: func() (*read.Reader, func(), error) {
			fs, err := cgroup.OpenTree(mount) // the start has checked it
			if err != nil {
				return nil, nil, err
			}
			proc, err := read.OpenProc(o.ProcMount)
			if err != nil {
				fs.Close()
				return nil, nil, err
			}
			reader, err := read.NewReader(fs, proc, o.Config.CgroupRoot)
			if err != nil {
				proc.Close()
				fs.Close()
				return nil, nil, err
			}
			return reader, func() { proc.Close(); fs.Close() }, nil
		},
	})
	b.onCloseErr(b.taker.Close)
	return b.taker
}

// serve listens on the network if configured, immediately or when the address becomes free.
func (b *builder) serve() error {
	c := b.o.Config
	if c.Listen == "" {
		return nil
	}
	server, err := remote.ListenLate(remote.Options{
		Listen: c.Listen, TLSCertFile: c.TLSCertFile, TLSPrivateKeyFile: c.TLSPrivateKeyFile,
		BearerTokenFile: c.BearerTokenFile,
		Reads:           b.endpoints,
	}, b.o.Log)
	if err != nil {
		return err
	}
	b.onCloseErr(server.Close)
	return nil
}

// storeSocketPath stores the path of the agent's socket for probes: their configuration may differ
// before the agent restarts.
func (b *builder) storeSocketPath() {
	if b.keeper.LockedByOther() != nil { // the other agent has stored it
		return
	}
	if err := socketpath.Store(b.o.Config.StateDir, b.o.Config.Socket); err != nil {
		//log: The path of the agent's socket could not be stored in stateDir. Probes use the path in the
		//  configuration.
		//do: See the key error, and check the disk of stateDir.
		b.log.Warn("socket path not stored", "error", fmt.Errorf("store the socket path: %w", err))
	}
}
