// How workgroups that share work find out who is the last of them. The kernel names `tickets`, zeros before and after.
//
// Row invariance: the ticket decides who goes on, never what comes of it.

var<workgroup> is_last: u32;

// Whether this workgroup is the last of so many at a ticket. What the others wrote atomically before is read by atomic loads,
// which no cache makes stale.
fn arrives_last(ticket: u32, workgroups: u32, thread: u32) -> bool {
    storageBarrier();
    workgroupBarrier();
    if thread == 0u {
        let before = atomicAdd(&tickets[ticket], 1u);
        if before == workgroups - 1u {
            atomicStore(&tickets[ticket], 0u);
        }
        is_last = u32(before == workgroups - 1u);
    }
    workgroupBarrier();
    storageBarrier();
    return is_last == 1u;
}
