package daemon

import "time"

// Alive: the supervisor of this process is notified by the goroutine that does its work, for as
// long as it does. That is the loop that drives the lease, which joins as well as renews. If no
// lease is driven, it is Service's loop that joins again. A failing or hung device must not stop
// either loop: it ends the lease, and restarting the process would not help.

// aliveEvery is how often the service calls Alive while no lease is driven.
const aliveEvery = time.Second

// whileAlive calls do, which may take long. Meanwhile it reports that the service is alive while no
// lease is driven.
func (s *Service) whileAlive(do func() error) error {
	if s.cfg.Alive == nil {
		return do()
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	for {
		if j, _ := s.term(); j == nil || !j.drives() {
			s.cfg.Alive()
		}
		select {
		case err := <-done:
			return err
		case <-time.After(min(aliveEvery, s.cfg.AliveEvery)):
		}
	}
}
