"""The exchange of references among gateways: one offers, the others wait, and none waits for one that died."""

from __future__ import annotations

import asyncio

from ringside.cluster.exchange import Exchange

LONG_SECONDS = 60.0


def test_the_first_caller_offers_and_the_others_wait_for_it() -> None:
    async def meet() -> list[list[str]]:
        exchange = Exchange()
        assert await exchange.take(7, LONG_SECONDS) == []
        waiting = [asyncio.create_task(exchange.take(7, LONG_SECONDS)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        await exchange.offer(7, ["seven"])
        return [*await asyncio.gather(*waiting), await exchange.take(7, LONG_SECONDS)]

    assert asyncio.run(meet()) == [["seven"]] * 3


def test_a_caller_offers_itself_where_the_first_one_died() -> None:
    async def meet() -> list[str]:
        exchange = Exchange()
        await exchange.take(7, LONG_SECONDS)
        assert await exchange.take(7, 0.01) == []
        await exchange.offer(7, ["second"])
        return await exchange.take(7, LONG_SECONDS)

    assert asyncio.run(meet()) == ["second"]


def test_a_late_offer_is_not_taken_for_another_version() -> None:
    async def meet() -> None:
        exchange = Exchange()
        await exchange.take(7, LONG_SECONDS)
        late = asyncio.create_task(exchange.take(7, 0.01))
        await asyncio.sleep(0)
        assert await exchange.take(8, LONG_SECONDS) == []
        await exchange.offer(7, ["seven"])
        assert await late == []
        await exchange.offer(8, ["eight"])
        assert await exchange.take(8, LONG_SECONDS) == ["eight"]

    asyncio.run(meet())
