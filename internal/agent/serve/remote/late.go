package remote

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// again is the time between two attempts to listen.
const again = 10 * time.Second

// Late listens as soon as it can. Any user of the node may have taken the port, and an address may
// come with a network that is not up yet: neither is a reason not to guard the node.
type Late struct {
	server *Server
	ended  chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// ListenLate listens, now or later. Errors are those that time does not mend: of the options, of a
// file.
func ListenLate(o Options, log *slog.Logger) (*Late, error) { return listenLate(o, log, again) }

func listenLate(o Options, log *slog.Logger, every time.Duration) (*Late, error) {
	l := &Late{ended: make(chan struct{})}
	if passing, err := l.listen(o, log); err == nil || !passing {
		return l, err
	} else {
		log.Warn("nothing is served on the network yet", "error", err, "every", every)
	}
	l.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-l.ended:
				return
			case <-tick.C:
			}
			if _, err := l.listen(o, log); err == nil {
				return
			}
		}
	})
	return l, nil
}

// listen tries once. passing: a later attempt may succeed.
func (l *Late) listen(o Options, log *slog.Logger) (passing bool, err error) {
	server, err := Listen(o)
	if err != nil {
		return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL), err
	}
	l.server = server
	log.Info("listening", "address", server.Address(), "tls", o.TLSCertFile != "",
		"token", o.BearerTokenFile != "")
	return false, nil
}

// Close ends it, and what was asked for. The error says that something did not end.
func (l *Late) Close() error {
	l.once.Do(func() { close(l.ended) })
	l.done.Wait()
	if l.server == nil {
		return nil
	}
	return l.server.Close()
}
