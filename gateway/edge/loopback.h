/* Listeners whose connections never leave the machine. */
#ifndef KG_EDGE_LOOPBACK_H
#define KG_EDGE_LOOPBACK_H

#include <stdbool.h>
#include <sys/socket.h>

bool kg_loopback_is(const struct sockaddr *addr); /* 127.0.0.0/8, also within IPv6, or ::1 */
/* Before listen(2): what comes in at an address of loopback is sent without pacing, where BBR is
 * what the system uses. Any other address keeps the system's choice, and so does a connection whose
 * socket cannot have ours. */
void kg_loopback_unpaced(int fd, const struct sockaddr *addr);

#endif
